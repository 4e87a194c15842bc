import { join } from 'node:path'
import { afterAll } from 'vitest'
import { type LogFields, type Logger, silentLogger } from '../../../../src/base/log.ts'
import { type ControllerClient, openController } from '../../../../src/host/controller/client.ts'
import { type Controller, startController } from '../../../../src/host/controller/controller.ts'
import type { Credentials } from '../../../../src/host/tls/credentials.ts'
import type { Endpoint } from '../../../../src/host/tls/endpoint.ts'
import { temporaryFolder } from '../../temporary-folder.ts'
import { hostAuthority } from '../moves/host-certificates.ts'
import type { Authority } from '../moves/sign-certificates.ts'
import { type Etcd, freePorts, startEtcd } from './etcd.ts'

/** Controllers of this process over a real etcd, and their callers. */
export interface TestControllers {
  readonly etcd: Etcd
  readonly authority: Authority
  readonly endpoints: readonly Endpoint[]
  /** The log lines of all controllers. */
  readonly lines: { readonly message: string; readonly fields: LogFields }[]
  /** A client as this host, of one controller or of all. */
  clientOf(host: string, index?: number): ControllerClient
}

/** Starts etcd and controllers, which end after the last test of the file. */
export async function startControllers({
  controllers = 1,
  members = 1,
  words = [],
  hosts = ['a', 'b', 'c'],
}: {
  readonly controllers?: number
  readonly members?: number
  /** Of etcd, besides. */
  readonly words?: readonly string[]
  readonly hosts?: readonly string[]
} = {}): Promise<TestControllers> {
  const authority = hostAuthority('hosts', ['controller', ...hosts])
  const etcd = await startEtcd(temporaryFolder(), { count: members, words })
  const running: Controller[] = []
  const clients: ControllerClient[] = []
  afterAll(async () => {
    for (const client of clients) client.close()
    await Promise.all(running.map((controller) => controller.close()))
    await etcd.end()
  })
  const lines: TestControllers['lines'] = []
  const endpoints = (await freePorts(controllers)).map((port) => ({ host: '127.0.0.1', port }))
  for (const listen of endpoints) {
    const credentials = credentialsOf(authority, 'controller')
    running.push(await startController({ etcd, listen, credentials, log: loggerTo(lines) }))
  }
  return {
    ...{ etcd, authority, endpoints, lines },
    clientOf: (host, index) => {
      const own = index === undefined ? endpoints : endpoints.slice(index, index + 1)
      const client = openController({ endpoints: own, credentials: credentialsOf(authority, host) })
      clients.push(client)
      return client
    },
  }
}

export function credentialsOf(authority: Authority, id: string): Credentials {
  const files = {
    ca: authority.ca,
    cert: join(authority.folder, `${id}.pem`),
    key: join(authority.folder, `${id}.key`),
  }
  return { id, files, pem: authority.pemOf(id) }
}

function loggerTo(lines: TestControllers['lines']): Logger {
  const add = (message: string, fields: LogFields = {}) => void lines.push({ message, fields })
  return { ...silentLogger(), info: add, warn: add, error: add }
}
