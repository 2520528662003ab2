"""`deploy test --accuracy`: questions with known answers, their scores, and two runs compared."""
