"""What a run is: recipe, folder, summary, queue, and the way from one to the other."""
