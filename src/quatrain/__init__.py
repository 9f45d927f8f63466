"""Four learners as functions of arrays: no paths, files, MLflow or printing."""
