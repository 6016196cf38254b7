from toolcell import Context, tool
