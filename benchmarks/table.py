"""The names of rows at their former place."""

from benchmarks.harness import Goal, NotTheSame, Point, Report, Row, Without, render
from pipeline.reporting.speed import as_json

__all__ = ["Goal", "NotTheSame", "Point", "Report", "Row", "Without", "as_json", "render"]
