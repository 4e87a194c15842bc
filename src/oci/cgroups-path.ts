/**
 * Where below the cgroup root a container's cgroup goes (behaviour spec, section D.6, cgroupfs only): always
 * absolute, because a runtime puts a relative path below its own cgroup. `slice:prefix:name`, the form meant for
 * systemd, becomes the folders `/slice/prefix/name`; a path that names nothing is the container's id: in the root cgroup a
 * container would be one with the agent, and die with it. `requested` was checked: no `..` is in it.
 */
export function cgroupsPath(requested: string, containerId: string): string {
  const names = requested
    .replaceAll(':', '/')
    .split('/')
    .filter((name) => name !== '' && name !== '.')
  return `/${names.length === 0 ? containerId : names.join('/')}`
}
