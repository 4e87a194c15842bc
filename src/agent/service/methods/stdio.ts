import type { AgentServiceDefinition, ReadStreamResponse } from '../../../gen/agent.ts'
import {
  closeStdin,
  readStderr,
  readStdout,
  ttyWinResize,
  writeStdin,
} from '../../../handlers/process/stdio-calls.ts'
import type { SandboxContext } from '../../../handlers/sandbox/context.ts'
import { usableContainers } from '../../../handlers/sandbox/usable-containers.ts'
import type { OutputRead } from '../../../handlers/stdio/process-streams.ts'
import { encodeBytesField } from '../../../rpc/bytes-field.ts'
import type { Encoded, StoredBytes } from '../../../rpc/method.ts'
import { finishing, type ServiceMethods, taking } from '../rpc.ts'

/** The RPCs of a process's input and output (spec C.13 to C.16). */
export function stdioMethods(sandbox: SandboxContext) {
  const usable = () => usableContainers(sandbox)
  return {
    // Journaled: the bytes that the process's pipe has taken already are not written again.
    writeStdin: taking(async (request, call) => writeStdin(usable(), request, call), STREAM),
    // Journaled: the answer takes the bytes out of the stream.
    readStdout: taking(async (request, call) => answered(await readStdout(usable(), request, call)), READ),
    readStderr: taking(async (request, call) => answered(await readStderr(usable(), request, call)), READ),
    closeStdin: finishing('idempotent', async (request, { signal }) => closeStdin(usable(), request, signal)),
    ttyWinResize: finishing('idempotent', async (request, { signal }) =>
      ttyWinResize(usable(), request, signal),
    ),
  } satisfies Partial<ServiceMethods<typeof AgentServiceDefinition>>
}

/** Output that need not be in this process. */
interface StoredAnswer extends ReadStreamResponse {
  readonly stored?: StoredBytes
}

/** The answer to a read. */
function answered(read: OutputRead): StoredAnswer {
  return {
    get data() {
      return read.read()
    },
    stored: read,
  }
}

/** They come by the thousand, and wait for the process. */
const STREAM = { turn: 'wait', logLevel: 'debug' } as const

const READ = {
  ...STREAM,
  /** Without a copy of the data. */
  encode: (answer: StoredAnswer): Encoded => encodeBytesField(1, answer.stored ?? answer.data),
  /** The bytes are read, so that the process can go on writing. */
  emptied: (): ReadStreamResponse => ({ data: new Uint8Array(0) }),
} as const
