"""What tests of sweeps need beside the other tests."""

from importlib.util import find_spec

# `make test-full` and CI install Ray and Optuna (`make cluster`); the quick tests run without.
collect_ignore = [] if find_spec("optuna") else ["test_search.py", "test_plan.py", "test_pace.py"]
