import { createServer, type Socket } from 'node:net'
import { messageOf } from '../../../base/errors.ts'
import { parseAddress } from '../../../client/connection/address.ts'
import { fileFailure } from '../../../client/files/file-failure.ts'
import { type Context, UsageError } from '../../command.ts'
import { LineWriter } from '../../recording/line-writer.ts'
import { recordBetween } from '../../recording/record-proxy.ts'
import { newRecording } from '../../recording/recording-file.ts'

export async function run(context: Context): Promise<number> {
  const { io, signal, values } = context
  if (!values.flag('listen')) throw new UsageError('record: no --listen, want --listen unix://PATH')
  const path = values.parsed('listen', '', listenPath)
  // Fails before a caller connects when there is no agent.
  await context.session()
  const writer = new LineWriter(newRecording(values.argument('FILE')))
  const over = Promise.withResolvers<void>()
  let connections = 0
  let open = 0
  const server = createServer({ allowHalfOpen: true }, (caller: Socket) => {
    connections += 1
    open += 1
    const connection = connections
    const joined = join(context, caller, connection, writer)
    void joined.finally(() => {
      open -= 1
      if (open === 0 && values.flag('once')) over.resolve()
    })
  })
  server.once('error', (error) =>
    over.reject(new UsageError(`--listen: ${fileFailure(path, error)}`, { cause: error })),
  )
  server.listen(path.startsWith('@') ? `\0${path.slice(1)}` : path, () => {
    io.stderr.write(`agent-ctl: recording what connects to unix://${path}\n`)
  })
  signal.addEventListener('abort', () => server.close())
  try {
    await over.promise
    return 0
  } finally {
    server.close()
  }
}

async function join(context: Context, caller: Socket, connection: number, writer: LineWriter): Promise<void> {
  caller.on('error', () => {})
  try {
    const isTtrpc = await recordBetween(caller, await context.dial(), { connection, writer })
    if (!isTtrpc)
      context.io.stderr.write(`agent-ctl: connection ${connection}: not ttRPC, and not recorded\n`)
  } catch (error) {
    caller.destroy()
    context.io.stderr.write(`agent-ctl: connection ${connection}: ${messageOf(error)}\n`)
  }
}

function listenPath(text: string): string {
  const address = parseAddress(text)
  if (address.kind === 'unix') return address.path
  throw new Error(`${text}: want unix://PATH`)
}
