import type { AgentServiceDefinition } from '../../../gen/agent.ts'
import {
  closeStdin,
  readStderr,
  readStdout,
  ttyWinResize,
  writeStdin,
} from '../../../handlers/process/stdio-calls.ts'
import type { SandboxContext } from '../../../handlers/sandbox/context.ts'
import { servedWith } from '../../../handlers/sandbox/usable-containers.ts'
import { NO_OUTPUT, type OutputRead } from '../../../handlers/stdio/process-streams.ts'
import { encodeBytesField } from '../../../rpc/bytes-field.ts'
import type { Encoded } from '../../../rpc/method.ts'
import { finishing, type ServiceMethods, taking } from '../rpc.ts'

export function stdioMethods(sandbox: SandboxContext) {
  const served = servedWith(sandbox)
  return {
    // Journaled: the bytes that the process's pipe has taken already are not written again.
    writeStdin: taking(served(writeStdin), STREAM),
    // Journaled: the answer takes the bytes out of the stream.
    readStdout: taking(served(readStdout), READ),
    readStderr: taking(served(readStderr), READ),
    closeStdin: finishing('idempotent', served(closeStdin)),
    ttyWinResize: finishing('idempotent', served(ttyWinResize)),
  } satisfies Partial<ServiceMethods<typeof AgentServiceDefinition>>
}

/** They come by the thousand, and wait for the process. */
const STREAM = { turn: 'wait', logLevel: 'debug' } as const

const READ = {
  ...STREAM,
  /** Without a copy of the data. */
  encode: (output: OutputRead): Encoded => encodeBytesField(1, output),
  /** The bytes are read, so that the process can go on writing. */
  emptied: (): OutputRead => NO_OUTPUT,
} as const
