"""specdrift's page. Start it with `streamlit run app.py`; SPECDRIFT_API_URL names the API."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

# A file of ours: Streamlit's own icons would be fetched from elsewhere for the browser's tab.
ICON = Path(__file__).with_name("icon.svg")

st.set_page_config(page_title="specdrift", page_icon=str(ICON), layout="wide", menu_items={})
# Not in a folder "pages": Streamlit would list that by itself until this has run once.
st.navigation(
    [
        st.Page("views/overview.py", title="Overview", icon=":material/monitoring:", default=True),
        st.Page("views/latency.py", title="Latency", icon=":material/speed:"),
        st.Page("views/decisions.py", title="Decisions", icon=":material/gavel:"),
    ],
    position="top",
).run()
