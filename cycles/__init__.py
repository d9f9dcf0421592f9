"""The estimator: how many cycles a program takes on a machine, without simulating its logic."""
