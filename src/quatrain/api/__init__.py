"""The public API: what `import quatrain` offers, in a folder of its own."""
