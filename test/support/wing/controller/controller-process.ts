import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import { projectRoot } from '../../../../src/build/project.ts'
import { type Endpoint, endpointText } from '../../../../src/host/tls/endpoint.ts'
import { hasLogged } from '../../processes.ts'
import type { Authority } from '../moves/sign-certificates.ts'

/** Starts `./microvm controller`, and resolves once it serves. Rejects with its log when it ends before. */
export async function startControllerProcess({
  authority,
  etcd,
  listen,
  metrics,
  program = [process.execPath, join(projectRoot, 'src/microvm/main.ts')],
  enter = [],
}: {
  readonly authority: Authority
  readonly etcd: readonly Endpoint[]
  readonly listen: Endpoint
  readonly metrics: Endpoint
  /** The words of `./microvm`. */
  readonly program?: readonly string[]
  /** What it is started by. */
  readonly enter?: readonly string[]
}): Promise<ChildProcess> {
  const at = (file: string) => join(authority.folder, file)
  const members = etcd.flatMap((endpoint) => ['--etcd', `http://${endpointText(endpoint)}`])
  const files = ['--ca', authority.ca, '--cert', at('controller.pem'), '--key', at('controller.key')]
  const places = ['--listen', endpointText(listen), '--metrics', endpointText(metrics)]
  // It ends with this process at the latest.
  const [command = '', ...words] = [
    ...enter,
    ...['setpriv', '--pdeathsig', 'KILL'],
    ...program,
    'controller',
    ...members,
    ...places,
    ...files,
  ]
  const controller = spawn(command, words, { stdio: ['ignore', 'ignore', 'pipe'] })
  await hasLogged(controller, '"msg":"serving"', 'the controller')
  return controller
}
