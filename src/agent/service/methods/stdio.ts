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
import { finishing, NO_DISK, type ServiceMethods, taking } from '../rpc.ts'

export function stdioMethods(sandbox: SandboxContext) {
  const served = servedWith(sandbox)
  return {
    // Journaled, because bytes that the pipe has taken must not be written again.
    writeStdin: taking(served(writeStdin), { ...STREAM, dataField: 3, key: 'goes on' }),
    // Journaled, because the answer removes the bytes from the stream.
    readStdout: taking(served(readStdout), READ),
    readStderr: taking(served(readStderr), READ),
    closeStdin: finishing('idempotent', served(closeStdin), NO_DISK),
    ttyWinResize: finishing('idempotent', served(ttyWinResize), NO_DISK),
  } satisfies Partial<ServiceMethods<typeof AgentServiceDefinition>>
}

/** Such calls are frequent, and wait for the process. */
const STREAM = { ...NO_DISK, turn: 'wait', logLevel: 'debug' } as const

const READ = {
  ...STREAM,
  readsOutput: true,
  /** Does not copy the data. */
  encode: (output: OutputRead): Encoded => encodeBytesField(1, output),
  /** A refused call still reads the bytes, so that the process can go on writing. */
  emptied: (): OutputRead => NO_OUTPUT,
} as const
