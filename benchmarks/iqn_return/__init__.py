"""How long iqn and the plain reference train until they reach one return."""
