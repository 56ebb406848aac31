"""Which questions of a project's Python classify a card, and what they answer for one architecture. Read as syntax
trees and answered by a small evaluator; nothing of the project is imported or run."""
