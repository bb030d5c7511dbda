// Before the first paint, so that nothing flashes: the theme that was chosen here, if any.
try {
  const chosen = localStorage.getItem("lantern-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* storage is turned off: follow the system */ }
