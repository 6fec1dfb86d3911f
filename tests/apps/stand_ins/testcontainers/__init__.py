"""In place of the package of this name, which starts servers in containers: arq's tests use it."""
