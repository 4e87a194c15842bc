// Preloaded into a daemon, which stops (SIGSTOP) before each request to its registry while the file STOP_WHILE exists.
import { existsSync } from 'node:fs'
import { isMainThread, Worker } from 'node:worker_threads'

if (isMainThread) {
  const { postMessage } = Worker.prototype
  Worker.prototype.postMessage = function (...words) {
    if (existsSync(process.env.STOP_WHILE ?? '')) process.kill(process.pid, 'SIGSTOP')
    postMessage.apply(this, words)
  }
}
