"""Which heads a model needs: switch them off one by one, weigh them by gradients, and cut out the rest."""
