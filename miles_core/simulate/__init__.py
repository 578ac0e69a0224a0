"""The simulator: a recipe's real schedule, rollout, buffer and policies, in virtual time on modelled engines."""
