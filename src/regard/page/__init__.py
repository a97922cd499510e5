"""The viewer: a record of attention as one offline file, as a page of the local server, or in a notebook."""
