"""Run folders as tables, figures and pages."""
