import { chmodSync, chownSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { AgentError } from '../../../src/base/errors.ts'
import type { Backend, DeepPartial } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { DEFAULT_QUOTA } from '../../../src/host/instance/record/quota.ts'
import {
  type DaemonClient,
  type RunningDaemon,
  runMockDaemon,
} from '../../support/host-wing/running-daemon.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { CONSOLE_ONLY, ensureRequest } from '../../support/wing/requests.ts'

const uid = process.getuid?.() ?? 0

type Backends = Readonly<Record<keyof Backend, (path: string) => DeepPartial<Backend>>>

/** A backend of each kind. */
const BACKENDS: Backends = {
  file: (path) => ({ file: { path, access: 2 } }),
  passt: () => ({ passt: {} }),
  tap: () => ({ tap: { interfaceName: 'tap0' } }),
  vhostVsock: () => ({ vhostVsock: {} }),
  vsockDaemon: () => ({ vsockDaemon: {} }),
  vhostUser: (socket) => ({ vhostUser: { socket } }),
  virtiofsd: (path) => ({ virtiofsd: { path } }),
  console: () => ({ console: {} }),
  content: (path) => ({ content: { path } }),
  folder: (path) => ({ folder: { path } }),
  userNetwork: () => ({ userNetwork: {} }),
}

const WITH_PATH = ['file', 'vhostUser', 'content'] as const
const FREE = ['passt', 'vsockDaemon', 'console'] as const
const REFUSED = ['tap', 'vhostVsock', 'virtiofsd', 'folder', 'userNetwork'] as const

/** In an open one, others can replace what is in it. */
const FOLDERS = [
  ['sub', 0o755],
  ['open', 0o770],
  ['open/sub', 0o755],
  ['sticky', 0o1777],
  ['sticky/open', 0o757],
] as const

describe('what a tenant may give to a machine', () => {
  const folder = temporaryFolder()
  const own = join(folder, 'anne')
  const kernel = join(own, 'kernel')
  let running: RunningDaemon
  let anne: DaemonClient
  let count = 0

  beforeAll(async () => {
    mkdirSync(own)
    writeFileSync(join(own, 'disk'), '')
    writeFileSync(kernel, '')
    for (const [name, mode] of FOLDERS) {
      mkdirSync(join(own, name))
      writeFileSync(join(own, name, 'disk'), '')
      chmodSync(join(own, name), mode)
    }
    writeFileSync(join(folder, 'secret'), '')
    symlinkSync(join(folder, 'secret'), join(own, 'link'))
    symlinkSync(join(own, 'disk'), join(own, 'own-link'))
    symlinkSync(folder, join(own, 'up'))
    const quota = { ...DEFAULT_QUOTA, instances: 1000, memoryMib: 1_000_000, cpus: 1000 }
    const tenants = [{ name: 'anne', uid, folders: [own], quota }]
    running = await runMockDaemon({ configuration: { tenants } })
    anne = running.client('anne')
  })

  afterAll(() => running.close())

  /** By each RPC that takes a backend. */
  async function tryAll(client: DaemonClient, backend: DeepPartial<Backend>): Promise<readonly string[]> {
    count += 1
    const key = `a${count}`
    const board = { kernel }
    await client.instances.ensureInstance(ensureRequest(key, { specification: { ...CONSOLE_ONLY, board } }))
    const specification = { ...CONSOLE_ONLY, board, backends: { x: backend } }
    const answers = [
      client.instances.ensureInstance(ensureRequest(`b${count}`, { specification })),
      client.instances.plug({ key, deviceKey: 'd', device: { backend: 'x', serial: {} }, backend }),
      client.instances.replaceBackend({ key, backendKey: 'output', backend }),
    ]
    // Whether a machine can be made of it is for others to say.
    const codeOf = ({ code, message }: AgentError) =>
      code === 'INVALID_ARGUMENT' ? 'taken' : `${code} ${message}`
    return Promise.all(answers.map((answer) => answer.then(() => 'taken', codeOf)))
  }

  it('has a rule for each kind of backend', () => {
    expect([...WITH_PATH, ...FREE, ...REFUSED].sort()).toEqual(Object.keys(BACKENDS).sort())
  })

  it.each(FREE)('takes %s', async (kind) => {
    expect(await tryAll(anne, BACKENDS[kind](''))).toEqual(['taken', 'taken', 'taken'])
  })

  it.each(REFUSED)('refuses %s, which the administrator may use', async (kind) => {
    const name = kind.replace('N', '_n').replace('V', '_v')
    const text = `PERMISSION_DENIED backend: ${name} is for the administrator only`
    expect(await tryAll(anne, BACKENDS[kind](''))).toEqual([
      `PERMISSION_DENIED specification.backends["x"]: ${name} is for the administrator only`,
      text,
      text,
    ])
    expect(await tryAll(running.client(), BACKENDS[kind](''))).toEqual(['taken', 'taken', 'taken'])
  })

  it.each(WITH_PATH)('takes %s below a folder of the tenant only', async (kind) => {
    for (const path of ['disk', 'sub/disk', 'sticky/disk'])
      expect(await tryAll(anne, BACKENDS[kind](join(own, path)))).toEqual(['taken', 'taken', 'taken'])
    const outside = [
      ...['', '/', 'disk', '/etc/passwd', `${own}x/disk`, join(folder, 'secret')],
      ...[`${own}/../secret`, `${own}//disk`, `${own}/link`, `${own}/up/secret`, `${own}/nothing`],
      ...[`${own}/own-link`, `${own}/open/disk`, `${own}/open/sub/disk`, `${own}/sticky/open/disk`],
    ]
    for (const path of outside) {
      const text = `backend.${kind.replace('U', '_u')}: ${JSON.stringify(path)} is not in a folder of tenant anne`
      const answers = await tryAll(anne, BACKENDS[kind](path))
      expect(answers.slice(1), path).toEqual([`PERMISSION_DENIED ${text}`, `PERMISSION_DENIED ${text}`])
      expect(answers[0], path).toMatch(/^PERMISSION_DENIED specification\.backends\["x"\]/)
    }
    expect(await tryAll(running.client(), BACKENDS[kind]('/etc/passwd'))).toEqual(['taken', 'taken', 'taken'])
  })

  it.skipIf(uid !== 0)('takes nothing that another user than the administrator can replace', async () => {
    chownSync(join(own, 'sticky/disk'), 1000, 1000)
    chownSync(join(own, 'sub/disk'), 1000, 1000)
    const [taken] = await tryAll(anne, BACKENDS.file(join(own, 'sub/disk')))
    expect(taken).toBe('taken')
    const [refused] = await tryAll(anne, BACKENDS.file(join(own, 'sticky/disk')))
    expect(refused).toContain('is not in a folder of tenant anne')
    chownSync(join(own, 'sub'), 1000, 1000)
    const [other] = await tryAll(anne, BACKENDS.file(join(own, 'sub/disk')))
    expect(other).toContain('is not in a folder of tenant anne')
  })

  it('takes no more tasks than a machine has by default', async () => {
    const ensure = (client: DaemonClient, key: string, tasks: number) =>
      client.instances.ensureInstance(
        ensureRequest(key, { specification: { ...CONSOLE_ONLY, board: { kernel }, limits: { tasks } } }),
      )
    await ensure(anne, 'tasks', 513)
    await expect(ensure(anne, 'more', 514)).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
      message: 'specification.limits.tasks: 514, want at most 513 for a tenant',
    })
    await ensure(running.client(), 'more', 514)
  })

  it.each(['kernel', 'initrd', 'vmlinux'])('takes a %s below its folders only', async (name) => {
    const ensure = (key: string, path: string) =>
      anne.instances.ensureInstance(
        ensureRequest(key, { specification: { ...CONSOLE_ONLY, board: { kernel, [name]: path } } }),
      )
    await expect(ensure(`${name}1`, '/boot/vmlinuz')).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
      message: `specification.board.${name}: "/boot/vmlinuz" is not in a folder of tenant anne`,
    })
    await anne.instances.ensureInstance(
      ensureRequest(`${name}2`, {
        specification: { ...CONSOLE_ONLY, board: { kernel, [name]: join(own, 'disk') } },
      }),
    )
  })
})
