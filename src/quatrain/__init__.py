"""quatrain: four learners, arrays in and arrays out; what touches disk, clock or MLflow lives in pipeline/."""
