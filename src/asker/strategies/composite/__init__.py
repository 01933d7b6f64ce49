"""Strategies that are made of others: phases, exchanges, block moves."""
