"""Measurements that anyone can repeat on their own machine."""
