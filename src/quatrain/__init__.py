"""Four learners as functions of arrays: no paths, files, MLflow or printing."""

__version__ = "0.1.0"
