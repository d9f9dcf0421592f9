"""The machine in time: how many cycles a program takes, without simulating its logic."""
