(() => {
	const frames = [...document.querySelectorAll("svg.f")];
	const side = f => ["w", "h"].find(name => f.classList.contains(name));
	// A holder below a lock says nothing about who waited: zooming into one side hides the other.
	const zoom = (x, w, of) => frames.forEach(f => {
		const fx = +f.dataset.x, fw = +f.dataset.w, e = 1e-3;
		const covers = fx <= x + e && fx + fw >= x + w - e;
		const inside = fx >= x - e && fx + fw <= x + w + e;
		const other = of && side(f) && side(f) !== of;
		f.style.display = (covers || inside) && !other ? "" : "none";
		f.classList.toggle("outer", covers && fw > w + e);
		const left = covers ? 0 : 100 * (fx - x) / w, width = covers ? 100 : 100 * fw / w;
		f.setAttribute("x", left + "%");
		f.setAttribute("width", width + "%");
	});
	let now = null;
	const toggle = f => {
		now = now === f ? null : f;
		now ? zoom(+f.dataset.x, +f.dataset.w, side(f)) : zoom(0, 100);
	};
	frames.forEach(f => {
		f.setAttribute("tabindex", "0");
		f.setAttribute("role", "button");
		f.setAttribute("aria-label", f.querySelector("title").textContent);
		f.addEventListener("click", () => toggle(f));
		f.addEventListener("keydown", event => {
			if (event.key === "Enter" || event.key === " ") {
				event.preventDefault();
				toggle(f);
			}
		});
	});
	window.findFrames = text => frames.forEach(f => {
		const name = f.querySelector("text").textContent.toLowerCase();
		f.classList.toggle("found", text !== "" && name.includes(text.toLowerCase()));
	});
})();
