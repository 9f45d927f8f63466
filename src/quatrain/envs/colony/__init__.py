"""Growing cell colonies on plates of rising stiffness, many side by side."""
