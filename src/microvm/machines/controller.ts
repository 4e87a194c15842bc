import { readFile } from 'node:fs/promises'
import { flushCompileCache } from 'node:module'
import packageJson from '../../../package.json' with { type: 'json' }
import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'
import { jsonLogger } from '../../base/log.ts'
import { type ControllerOptions, startController } from '../../host/controller/controller.ts'
import { CONTROLLER, readCredentials } from '../../host/tls/credentials.ts'
import { type Endpoint, parseEndpoint } from '../../host/tls/endpoint.ts'
import { UsageError } from '../command-line/usage-error.mjs'
import type { MachineContext } from './command.ts'

/** Serves hosts until a signal comes. The log goes to stderr. */
export async function run({ interruptions, stdio, values }: MachineContext): Promise<undefined> {
  const signal = new Promise<void>((ended) => interruptions.forwardNext(() => ended()))
  const given = (name: string, meta: string) => {
    const text = values.get(name)
    if (text === undefined)
      throw new UsageError(`controller: no --${name} ${meta}, see ./microvm controller --help`)
    return text
  }
  const metrics = values.get('metrics')
  const options = {
    etcd: await etcdOf(given('etcd', 'ENDPOINT').split('\n'), values),
    listen: endpointOf('listen', given('listen', 'ADDRESS')),
    metrics: metrics === undefined ? undefined : endpointOf('metrics', metrics),
    credentials: await readCredentials({
      id: CONTROLLER,
      ca: given('ca', 'FILE'),
      cert: given('cert', 'FILE'),
      key: given('key', 'FILE'),
    }),
  }
  const controller = await startController({
    ...options,
    log: jsonLogger({
      sink: (line) => stdio.stderr.write(line),
      level: () => 'info',
      version: packageJson.version,
      pid: process.pid,
      program: { name: 'microvm', source: 'microvm' },
    }),
  })
  // Writes the compiled code for the next start, and keeps it no longer.
  flushCompileCache()
  await signal
  await controller.close()
}

async function etcdOf(
  texts: readonly string[],
  values: MachineContext['values'],
): Promise<ControllerOptions['etcd']> {
  const endpoints = texts.map((text) =>
    endpointOf('etcd', text.replace(/^https?:\/\//, '').replace(/\/$/, '')),
  )
  const secure = texts.filter((text) => text.startsWith('https://')).length
  if (secure > 0 && secure < texts.length)
    throw new UsageError('--etcd: some with https:// and some without, want all alike')
  const files = ['ca', 'cert', 'key'].map((name) => values.get(`etcd-${name}`))
  const [ca, cert, key] = files
  if (secure === 0) {
    if (files.some((file) => file !== undefined))
      throw new UsageError(
        '--etcd-ca, --etcd-cert, --etcd-key: for https:// alone, want --etcd https://HOST:PORT',
      )
    return { endpoints }
  }
  if (ca === undefined)
    throw new UsageError('--etcd https://…: no --etcd-ca FILE, see ./microvm controller --help')
  if ((cert === undefined) !== (key === undefined))
    throw new UsageError('--etcd-cert and --etcd-key: one without the other, want both')
  const shown =
    cert === undefined || key === undefined ? {} : { cert: await read(cert), key: await read(key) }
  return { endpoints, tls: { ca: await read(ca), ...shown } }
}

function read(path: string): Promise<string> {
  return readFile(path, 'utf8').catch((error) => {
    throw new AgentError('FAILED_PRECONDITION', `${path}: ${errnoOf(error) ?? messageOf(error)}`)
  })
}

function endpointOf(option: string, text: string): Endpoint {
  const endpoint = parseEndpoint(text)
  if (endpoint === undefined)
    throw new UsageError(`--${option} ${text}: want HOST:PORT, such as 192.0.2.9:7440`)
  return endpoint
}
