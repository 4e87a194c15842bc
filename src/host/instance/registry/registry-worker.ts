// The thread that waits for the disk, so that the daemon's own never does.
import { parentPort, workerData } from 'node:worker_threads'
import { AgentError, messageOf } from '../../../base/errors.ts'
import { openDatabase } from './database.ts'
import { lockFolder } from './folder-lock.ts'
import { findLoss, rebuild, registryPath } from './rebuild.ts'
import { Reserve } from './reserve.ts'
import type { Answer, Request, WorkerData } from './worker-messages.ts'

const { stateFolder, rebuilds }: WorkerData = workerData
const answer = (message: Answer) => parentPort?.postMessage(message)

try {
  const lock = lockFolder(stateFolder)
  if (rebuilds) {
    answer({ value: await rebuild(stateFolder) })
    lock.release()
  } else {
    findLoss(stateFolder)
    serve(lock.release)
  }
} catch (error) {
  answer(failure(error))
}

function serve(release: () => void): void {
  const database = openDatabase(registryPath(stateFolder))
  const reserve = new Reserve(stateFolder)
  parentPort?.on('message', (request: Request) => {
    try {
      answer({ value: carryOut(request) })
    } catch (error) {
      answer(failure(error))
    }
    if (request.kind === 'close') parentPort?.close()
  })
  answer({ value: undefined })

  function carryOut(request: Request): unknown {
    switch (request.kind) {
      case 'load':
        return database.rows(request.table)
      case 'commit':
        return request.usesReserve
          ? reserve.spend(() => database.write(request.changes), database.shrink)
          : database.write(request.changes)
      case 'close':
        database.close()
        return release()
      default:
        return request satisfies never
    }
  }
}

/** Errors lose their class and code between threads. */
function failure(error: unknown): Answer {
  const { code, errno } =
    error instanceof AgentError ? error : { code: 'INTERNAL' as const, errno: undefined }
  return { error: { code, message: messageOf(error), errno } }
}
