"""What can be read off attention, and off the model beside it: each measure a function in a file of its own."""
