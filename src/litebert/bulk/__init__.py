"""One model over files of any size: parts in, parts out, resumable at any moment."""
