"""Waits for the S3 server of AWS_ENDPOINT_URL and makes the bucket named by the first argument,
unless it is there.
"""

import sys

import boto3
from botocore.config import Config

RETRIES = Config(
    retries={"mode": "standard", "max_attempts": 12}, connect_timeout=5, read_timeout=10
)


def main(name: str) -> None:
    client = boto3.client("s3", config=RETRIES)
    if name not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket=name)


if __name__ == "__main__":
    main(sys.argv[1])
