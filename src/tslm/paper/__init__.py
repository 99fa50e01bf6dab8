"""The paper's tables, figures and claims: from plan to verdict."""
