"""Runs the pipeline again in a git worktree and proposes what passed the gate as a branch."""
