import { open } from 'node:fs/promises'
import { fileFailure } from '../../../client/files/file-failure.ts'
import { ReadProfileRequest_Kind } from '../../../gen/microvm/agent/v1/introspection.ts'
import { introspectionCalls } from '../../clients.ts'
import { CommandFailure, type Context, EXIT } from '../../command.ts'
import { print } from '../../output/print.ts'
import { bytesText } from '../../output/text.ts'

const KINDS = {
  cpu: { kind: ReadProfileRequest_Kind.CPU, file: 'agent.cpuprofile' },
  heap: { kind: ReadProfileRequest_Kind.HEAP, file: 'agent.heapsnapshot' },
} as const

export async function run(context: Context): Promise<undefined> {
  const { values } = context
  const { file, kind } = values.argument('KIND') === 'heap' ? KINDS.heap : KINDS.cpu
  const path = values.argument('FILE') || file
  const durationMs = (values.number('seconds', 1, 60) ?? 5) * 1000
  const failed = (error: unknown): never => {
    throw new CommandFailure(EXIT.cannotRun, fileFailure(path, error), { cause: error })
  }
  // Opened before the profile costs the agent time. A heap snapshot may hold secrets.
  const target = await open(path, 'w', 0o600).catch(failed)
  try {
    const introspection = await introspectionCalls(context)
    const first = await introspection.readProfile({ kind, durationMs })
    const { id, sizeBytes } = first
    try {
      let { data } = first
      for (let offset = 0n; ; ) {
        await target.write(data).catch(failed)
        offset += BigInt(data.length)
        if (offset >= sizeBytes || data.length === 0) break
        data = (await introspection.readProfile({ id, offset })).data
      }
    } finally {
      await introspection.readProfile({ id, discard: true }).catch(() => {})
    }
    await print(context, `${path}: ${bytesText(sizeBytes)}, for Chrome's developer tools\n`)
  } finally {
    await target.close()
  }
}
