import { Worker } from 'node:worker_threads'

export interface CaseWatch {
  /** `batch` is `FILE/TARGET:SEED`. */
  beginBatch(batch: string): void
  beginCase(): void
  end(): void
}

/** Kills this process and names the case when it blocks the thread longer than `limitMs`: nothing else could end it. */
export function watchCases(limitMs: number): CaseWatch {
  const count = new Int32Array(new SharedArrayBuffer(4))
  const worker = new Worker(WATCH, { eval: true, workerData: { count, limitMs } })
  worker.unref()
  return {
    beginBatch: (batch) => {
      Atomics.store(count, 0, -1)
      worker.postMessage(batch)
    },
    beginCase: () => void Atomics.add(count, 0, 1),
    end: () => void worker.terminate(),
  }
}

const WATCH = `
  const { parentPort, workerData } = require('node:worker_threads')
  const { count, limitMs } = workerData
  let batch
  let seen
  parentPort.on('message', (next) => {
    batch = next
    seen = undefined
  })
  setInterval(() => {
    const now = Atomics.load(count, 0)
    if (now === seen && now >= 0) {
      const line = 'FAIL a case blocks the thread: npm run fuzz -- --replay ' + batch + ':' + now
      require('node:fs').writeSync(2, line + '\\n')
      process.kill(process.pid, 'SIGKILL')
    }
    seen = now
  }, limitMs)
`
