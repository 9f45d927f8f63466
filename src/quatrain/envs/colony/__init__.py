"""Growing cell colonies on a stiffness plate: what they depend on, how they step, what is seen and
paid.
"""
