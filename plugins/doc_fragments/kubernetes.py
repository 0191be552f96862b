# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the modules for Kubernetes find the API server: ``gpufleet.node.kubernetes``."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  kubeconfig:
    description:
      - The kubeconfig. If neither it nor O(context) nor O(host) is given, the service account of the pod in which the
        module runs is used, or else the default kubeconfig.
      - It can also be set in the environment by E(K8S_AUTH_KUBECONFIG), and so can each of the following options. These
        are the variables that the modules of C(kubernetes.core) take, and that credentials of AWX set.
    type: path
  context:
    description:
      - The context in the kubeconfig, in the environment E(K8S_AUTH_CONTEXT). The default is the current context.
    type: str
  host:
    description:
      - The address of the API server, in the environment E(K8S_AUTH_HOST).
    type: str
  api_key:
    description:
      - The token to authenticate with, in the environment E(K8S_AUTH_API_KEY).
    type: str
  validate_certs:
    description:
      - Whether the certificate of the API server must be valid, in the environment E(K8S_AUTH_VERIFY_SSL).
    type: bool
  ca_cert:
    description:
      - The file with the certificate authority of the API server, in the environment E(K8S_AUTH_SSL_CA_CERT).
    type: path
  client_cert:
    description:
      - The file with the certificate to authenticate with, in the environment E(K8S_AUTH_CERT_FILE).
    type: path
  client_key:
    description:
      - The file with the key of that certificate, in the environment E(K8S_AUTH_KEY_FILE).
    type: path
requirements:
  - Python 3.9 or newer on the host
  - The Python package kubernetes, 32 or newer, on the host
"""
