"""Recipes that come with the library, runnable as they are: `regard train NAME`."""
