"""Networks, figures and heat maps as SVG, without a plotting library."""
