!pip install -q humanize 'attrs>=1'
from toolcell import tool
