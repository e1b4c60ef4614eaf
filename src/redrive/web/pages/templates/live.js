// Keeps a page up to date while somebody looks at it. Without it the page works the same, only not live.

const main = document.querySelector("main[data-live]");
const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

function tellLocalTimes(within) {
  for (const time of within.querySelectorAll("time[datetime]:not([data-local])")) {
    time.dataset.local = "";
    time.title = `${time.title || time.textContent} · ${local.format(new Date(time.dateTime))}`;
  }
}

// What somebody is typing in or about to press stays as it is.
function isInUse(region) {
  const fields = [...region.querySelectorAll("input, textarea")];
  return (
    region.contains(document.activeElement) ||
    fields.some((field) => field.type !== "hidden" && field.value !== field.defaultValue)
  );
}

function keepOpen(before, after) {
  const opened = [...before.querySelectorAll("details")].map((one) => one.open);
  after.querySelectorAll("details").forEach((one, place) => {
    one.open = opened[place] ?? false;
  });
}

function renew(html) {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  for (const token of fresh.querySelectorAll("input[name=token]")) {
    token.setAttribute("value", main.dataset.token);
  }
  for (const region of main.querySelectorAll("[data-live][id]")) {
    const after = fresh.getElementById(region.id);
    if (after !== null && !isInUse(region)) {
      keepOpen(region, after);
      region.replaceChildren(...after.childNodes);
      tellLocalTimes(region);
    }
  }
}

const asOf = document.querySelector("footer time");

function tellTheTime(now, age) {
  asOf.dateTime = now;
  asOf.textContent = `${now.slice(0, 10)} ${now.slice(11, 19)} UTC`;
  document.getElementById("age").textContent = age && ` (${age})`;
}

let stream = null;

function listen() {
  stream ??= new EventSource(location.href);
  stream.addEventListener("page", (event) => {
    const told = JSON.parse(event.data);
    // What others look at may be older than what this page came with.
    if (new Date(told.now) >= new Date(asOf.dateTime)) {
      renew(told.html);
      tellTheTime(told.now, told.age);
    }
    if (!told.is_live) stop();
  });
}

function stop() {
  stream?.close();
  stream = null;
}

// What is typed into a form that tries something is tried, once nobody types any more.
function tryWhileTyping(form) {
  let waiting = 0;
  let number = 0;
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      const mine = ++number;
      const body = new URLSearchParams(new FormData(form));
      const answer = await fetch(form.action, { method: "POST", body });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const after = fresh.getElementById(form.dataset.preview);
      if (mine === number && after !== null) {
        document.getElementById(form.dataset.preview).replaceChildren(...after.childNodes);
      }
    }, 400);
  });
}

tellLocalTimes(document);
for (const form of document.querySelectorAll("form[data-preview]")) tryWhileTyping(form);
if (main !== null) {
  const follow = () => (document.hidden ? stop() : listen());
  document.addEventListener("visibilitychange", follow);
  addEventListener("pagehide", stop);
  follow();
}
