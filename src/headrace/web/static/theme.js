// Before anything is drawn: the colours chosen last.
const chosen = localStorage.getItem("headrace-theme");
if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
