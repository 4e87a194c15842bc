import { AgentError } from '../base/errors.ts'
import type { LinuxSeccomp, Spec } from '../gen/oci.ts'

/** Whether the processes of containers may make sockets of AF_VSOCK. */
export type ContainerVsock = 'deny' | 'allow'

export interface ContainerRules {
  readonly Annotations: Spec['Annotations']
  readonly Linux: { readonly Seccomp: LinuxSeccomp | undefined } | undefined
}

/** Overrides `agent.container_vsock` for one container. */
const VSOCK_ANNOTATION = 'microvm.agent.container_vsock'

/** The actions of seccomp by which a call has its effect. */
const PERMITTING = ['SCMP_ACT_ALLOW', 'SCMP_ACT_LOG']

/**
 * What the processes of a container are denied beside its own seccomp profile. io_uring can make any socket unseen by
 * seccomp, so it is denied with AF_VSOCK unless the profile permits `io_uring_setup` by its name. Throws INVALID_ARGUMENT
 * for an unknown word in the annotation.
 */
export function deniedCalls(
  spec: ContainerRules,
  setting: ContainerVsock,
): readonly ('vsock' | 'io_uring')[] {
  if ((annotatedVsock(spec) ?? setting) === 'allow') return []
  const permitted = spec.Linux?.Seccomp?.Syscalls.some(
    ({ Names, Action }) => PERMITTING.includes(Action) && Names.includes('io_uring_setup'),
  )
  return permitted === true ? ['vsock'] : ['vsock', 'io_uring']
}

/** Throws INVALID_ARGUMENT for an unknown word. */
export function annotatedVsock(spec: Pick<Spec, 'Annotations'>): ContainerVsock | undefined {
  const word = spec.Annotations[VSOCK_ANNOTATION]
  if (word === undefined || word === 'deny' || word === 'allow') return word
  throw new AgentError(
    'INVALID_ARGUMENT',
    `annotations['${VSOCK_ANNOTATION}']: unknown value "${word}", want deny or allow`,
  )
}
