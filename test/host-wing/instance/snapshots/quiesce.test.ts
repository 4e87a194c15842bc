import { readdirSync, writeFileSync } from 'node:fs'
import type { Server } from 'node:net'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { StatusCode } from '../../../../src/base/errors.ts'
import {
  Backend,
  ChangeStateRequest_Change as Change,
  ChangeStateRequest,
  Device,
  SnapshotRequest,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { guestSocket } from '../../../../src/host/instance/machine/daemon-steps.ts'
import { encodeErrorFrame } from '../../../../src/rpc/ttrpc/messages.ts'
import { type Answer, startAgent } from '../../../support/wing/fakes/fake-agent.ts'
import { ADMIN, ensureRequest, file, specification } from '../../../support/wing/requests.ts'
import { SuspendedWing } from '../../../support/wing/suspended-wing.ts'
import { FakeWing } from '../../../support/wing/wing.ts'

describe('a snapshot of a guest at rest', () => {
  let server: Server | undefined
  afterEach(() => void server?.close())

  async function callsOf(Quiesce: Answer) {
    const calls: string[] = []
    const wing = new FakeWing()
    const instances = await wing.open()
    const disk = join(wing.folder, 'disk')
    writeFileSync(disk, Buffer.alloc(4096))
    const { devices } = specification()
    const vsock = Device.fromPartial({ backend: 'daemon', slot: 10, vsock: {} })
    const daemon = Backend.fromPartial({ vsockDaemon: {} })
    const wanted = { devices: { ...devices, vsock }, backends: { 'root-file': file(disk), daemon } }
    await instances.ensure(ensureRequest('web', { specification: wanted }), ADMIN)
    await instances.changeState(ChangeStateRequest.fromPartial({ key: 'web', change: Change.RUN }), ADMIN)
    const [name = ''] = readdirSync(join(wing.folder, 'instances'))
    const socket = guestSocket(join(wing.folder, 'instances', name))
    server = await startAgent(socket, calls, { Quiesce })
    const request = SnapshotRequest.fromPartial({ key: 'web', name: 'one', quiesce: true })
    const error: unknown = await instances.snapshot(request, ADMIN).catch((error) => error)
    return { error, calls }
  }

  it('thaws it when the answer is lost', async () => {
    const { error, calls } = await callsOf((socket) => socket.destroy())
    expect(error).toMatchObject({ code: 'UNAVAILABLE', message: 'quiesce: ttrpc: closed' })
    expect(calls).toEqual(['Quiesce', 'Thaw'])
  })

  it('is thawed by the next daemon when its own has died', async () => {
    const wing = new SuspendedWing()
    const before = await wing.daemon()
    const disk = join(wing.folder, 'disk')
    writeFileSync(disk, Buffer.alloc(4096))
    await wing.make(before, { backends: { 'root-file': file(disk) } })
    const [calls, asked] = [[] as string[], Promise.withResolvers<void>()]
    server = await startAgent(guestSocket(wing.folderOf('web')), calls, { Quiesce: () => asked.resolve() })
    const request = SnapshotRequest.fromPartial({ key: 'web', name: 'one', quiesce: true })
    void before.snapshot(request, ADMIN).catch(() => {})
    await asked.promise
    wing.isDead = true
    await before.close()
    await (await wing.daemon()).get('web', ADMIN)
    expect(calls).toEqual(['Quiesce', 'Thaw'])
    expect(await wing.unfinished()).toEqual([])
  })

  it('leaves it to others when it is refused: they may have brought it to rest', async () => {
    const status = { code: StatusCode.FAILED_PRECONDITION, message: 'frozen already' }
    const { error, calls } = await callsOf((socket, id) => socket.write(encodeErrorFrame(id, status)))
    expect(error).toMatchObject({ code: 'FAILED_PRECONDITION', message: 'quiesce: frozen already' })
    expect(calls).toEqual(['Quiesce'])
  })
})
