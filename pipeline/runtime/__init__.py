"""The process: a stage, its signals, exit codes, devices and child processes."""
