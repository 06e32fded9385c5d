"""How are many files judged at once, by this machine or by many?

Nothing is judged in another way here: a worker asks the same `ApplyRun` that a run on one machine
asks. What is printed, and what Ray's own processes do, is no business of this package.
"""
