// A page that is read from a folder may not start a Worker, and search needs one.  This one runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = data => this.tell(this, data);
      this.inside.importScripts = (...urls) => { throw new Error(`${urls}: not in a frame`); };
      const script = frame.contentDocument.createElement("script");
      this.ready = new Promise(done => { script.onload = done; });
      script.src = url;
      frame.contentDocument.body.appendChild(script);
    }
    tell(target, data) {
      const event = new MessageEvent("message", { data });
      target.dispatchEvent(event);
      if (target.onmessage) target.onmessage(event);
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
