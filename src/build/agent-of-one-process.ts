import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { HealthCheckResponse, HealthCheckResponse_ServingStatus } from '../gen/health.ts'
import { ListProcessesResponse, Process_Role } from '../gen/microvm/agent/v1/introspection.ts'
import { FrameReader } from '../rpc/ttrpc/frame.ts'
import { decodeRequest, encodeResponseFrame } from '../rpc/ttrpc/messages.ts'
import { withTemporaryFolder } from './temporary-folder.ts'

/** Calls `use` with the path of a socket on which a small ttRPC server answers the calls of `agent-ctl ps`. */
export async function withAgentOfOneProcess(use: (socket: string) => Promise<void>): Promise<void> {
  await withTemporaryFolder(tmpdir(), async (folder) => {
    const path = join(folder, 'agent.sock')
    const server = createServer(answer).listen(path)
    try {
      await once(server, 'listening')
      await use(path)
    } finally {
      server.close()
    }
  })
}

const ANSWERS: Readonly<Record<string, Uint8Array>> = {
  Check: HealthCheckResponse.encode({ status: HealthCheckResponse_ServingStatus.SERVING }).finish(),
  ListProcesses: ListProcessesResponse.encode(
    ListProcessesResponse.fromPartial({
      processes: [
        {
          ...{
            role: Process_Role.INIT,
            containerId: 'web',
            pid: 100,
            parentPid: 1,
            name: 'sleep',
            state: 'S',
          },
          waitsIn: 'hrtimer_nanosleep',
          startedAtMs: 1n,
          threads: 1,
          residentBytes: 1_000_000n,
        },
      ],
    }),
  ).finish(),
}

function answer(socket: Socket): void {
  const refuse = () => socket.destroy()
  const reader = new FrameReader({
    onFrame: ({ streamId }, payload) => {
      const response = ANSWERS[decodeRequest(payload).method]
      if (response === undefined) refuse()
      else socket.write(encodeResponseFrame(streamId, response))
    },
    onOversizedFrame: refuse,
  })
  socket.on('data', (chunk) => reader.push(chunk)).on('error', refuse)
}
